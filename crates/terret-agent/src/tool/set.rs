use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use terret_llm::{Arguments, ToolSpec};

use super::arguments::{Validator, rejected};
use super::{InvalidSchema, Rejected, SharedTool, Tool};
use crate::machine::ToolFacts;

/// The tools of a run, in the order in which the model is told of them. Immutable, and cheap to clone.
#[derive(Clone, Default)]
pub struct ToolSet(Arc<Inner>);

#[derive(Default)]
struct Inner {
    tools: BTreeMap<String, Entry>,
    specs: Arc<[ToolSpec]>,
    facts: Arc<BTreeMap<String, ToolFacts>>,
}

struct Entry {
    tool: SharedTool,
    validator: Validator,
}

/// Why tools can't be used together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolSetError {
    /// A name that providers don't take.
    #[error("the tool name {0:?} is not 1 to 64 letters, digits, '_' or '-'")]
    InvalidName(String),
    /// Two tools of the same name.
    #[error("two tools have the name {0:?}")]
    RepeatedName(String),
    /// A schema that can't be used to validate.
    #[error(transparent)]
    InvalidSchema(#[from] InvalidSchema),
}

impl ToolSet {
    /// Checks the tools' names and schemas.
    pub fn new(tools: impl IntoIterator<Item = SharedTool>) -> Result<Self, ToolSetError> {
        let mut set = Inner::default();
        let mut specs = Vec::new();
        let mut facts = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec().clone();
            let name = spec.name.clone();
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if !(1..=64).contains(&name.len()) || !name.chars().all(legal) {
                return Err(ToolSetError::InvalidName(name));
            }
            facts.insert(name.clone(), ToolFacts { effect: tool.effect(), exclusive: tool.exclusive() });
            let validator = Validator::new(&spec)?;
            if set.tools.insert(name.clone(), Entry { tool, validator }).is_some() {
                return Err(ToolSetError::RepeatedName(name));
            }
            specs.push(spec);
        }
        set.specs = specs.into();
        set.facts = Arc::new(facts);
        Ok(Self(Arc::new(set)))
    }

    /// What the model is told.
    pub fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.0.specs
    }

    /// What the machine must know.
    pub fn facts(&self) -> &Arc<BTreeMap<String, ToolFacts>> {
        &self.0.facts
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.0.tools.get(name).map(|entry| &*entry.tool)
    }

    /// The same set with each tool in a wrapping that keeps its name and schema.
    #[cfg(feature = "testing")]
    pub(crate) fn map<T: Tool + 'static>(&self, wrap: impl Fn(SharedTool) -> Arc<T>) -> Self {
        let tools = self.0.specs.iter().filter_map(|spec| self.0.tools.get(&spec.name));
        // A set that was built can be built again.
        Self::new(tools.map(|entry| wrap(entry.tool.clone()) as SharedTool)).unwrap_or_else(|_| self.clone())
    }

    /// The arguments of a call as a value, or everything that is wrong with them. `None` for an unknown tool.
    pub fn validate(&self, name: &str, arguments: &Arguments) -> Option<Result<Value, Rejected>> {
        let entry = self.0.tools.get(name)?;
        let value = entry.validator.validate(name, arguments);
        Some(value.and_then(|value| match entry.tool.check(&value) {
            Ok(()) => Ok(value),
            Err(problem) => Err(rejected(name, arguments, &[problem])),
        }))
    }
}

impl std::fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.tools.keys()).finish()
    }
}
