use terret_llm::{Reply, StreamEvent};

fn as_it_streams(event: StreamEvent) -> Reply {
    match event {
        StreamEvent::Done(reply) => reply,
        StreamEvent::BlockDelta { text, .. } => text,
        _ => unreachable!(),
    }
}

fn main() {}
