use terret_llm::Reply;

fn main() {
    let _: Reply = serde_json::from_str("{}").unwrap();
}
