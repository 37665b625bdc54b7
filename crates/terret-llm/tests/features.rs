//! What Cargo features decide.

use terret_llm::wire::WireFormat;

#[test]
fn a_wire_that_is_not_built_in_still_has_its_name() {
    for (name, built_in) in [
        ("anthropic-messages", cfg!(feature = "anthropic-messages")),
        ("openai-completions", cfg!(feature = "openai-completions")),
        ("openai-responses", cfg!(feature = "openai-responses")),
        ("google-generative-ai", cfg!(feature = "google-generative-ai")),
        ("soap", false),
    ] {
        let format = WireFormat::from(name);
        assert_eq!(format.as_str(), name);
        assert_eq!(format.wire().is_some(), built_in, "{name}");
        assert_eq!(matches!(format, WireFormat::Other(_)), name == "soap");
    }
}
