use terret_llm::{Draft, Reply};

fn before_the_terminal(draft: Draft) -> Reply {
    draft
}

fn main() {}
