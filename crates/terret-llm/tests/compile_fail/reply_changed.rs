use terret_llm::{Block, Reply, ToolCall};

fn smuggled(mut reply: Reply, call: ToolCall) -> Reply {
    reply.message.content.push(Block::ToolCall(call));
    reply
}

fn main() {}
