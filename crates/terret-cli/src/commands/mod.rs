pub(crate) mod demo;
pub(crate) mod run;
pub(crate) mod wire;
