//! terret-agent
