use super::*;
pub(super) fn encode(_model: &ModelSpec, _request: &Request) -> Result<Encoded, EncodeError> {
    Err(EncodeError::NoMessages)
}
