pub(crate) mod wire;
