//! terret-tools
