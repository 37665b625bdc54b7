use terret_llm::{BlockKind, ToolCall};

fn before_its_arguments(kind: BlockKind) -> ToolCall {
    kind
}

fn main() {}
