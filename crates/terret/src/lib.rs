//! terret

pub use terret_llm as llm;
