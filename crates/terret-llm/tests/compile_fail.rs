//! Provisional and executable are different types: there is no way to a `Reply` but a provider's own terminal.

#[test]
fn a_reply_cannot_be_made_of_anything_provisional() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
