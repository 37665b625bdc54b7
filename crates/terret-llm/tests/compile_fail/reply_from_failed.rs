use terret_llm::{Failed, Reply};

fn despite_the_failure(failed: Failed) -> Reply {
    *failed.partial
}

fn main() {}
