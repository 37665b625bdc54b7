//! terret-store
