use terret_llm::{AssistantMessage, Reply};

fn put_together(message: AssistantMessage) -> Reply {
    Reply { message: Box::new(message) }
}

fn main() {}
