pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod wire;
