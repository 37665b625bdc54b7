//! Rules that were given for a session, and are kept with it.

use terret::agent::SessionId;
use terret::store::{GivenRules, SqliteJournal};
use terret::tools::{Decision, Rules};

use crate::exit::{Exit, Problem};
use crate::session::failed;

/// The rules that a session was given.
pub(crate) fn read(given: &GivenRules) -> Result<Rules, Problem> {
    let mut rules = Rules::new();
    for (decision, texts) in
        [(Decision::Allow, &given.allow), (Decision::Ask, &given.ask), (Decision::Deny, &given.deny)]
    {
        for text in texts {
            let rule = text.parse();
            let problem = |error| Problem::new(Exit::Configuration, format!("a rule of the session: {error}"));
            rules.add(decision, rule.map_err(|error: terret::tools::RuleError| problem(error))?);
        }
    }
    Ok(rules)
}

/// Changes the rules of a session, which may be running, and tells which they are then.
pub(crate) fn change<T>(
    journal: &SqliteJournal,
    id: &SessionId,
    change: impl FnOnce(&mut Rules) -> T,
) -> Result<(Rules, T), Problem> {
    let mut changed = None;
    let change = |given: &mut GivenRules| {
        changed = Some(read(given).map(|mut rules| {
            let done = change(&mut rules);
            *given = written(&rules);
            (rules, done)
        }));
    };
    journal.change_setup(id, |setup| change(&mut setup.rules)).map_err(|error| failed(&error))?;
    changed.unwrap_or_else(|| Err(Problem::new(Exit::RunFailed, "the session's rules were not changed")))
}

fn written(rules: &Rules) -> GivenRules {
    let of = |wanted| {
        let those = rules.iter().filter(|(decision, _)| *decision == wanted);
        those.map(|(_, rule)| rule.to_string()).collect()
    };
    GivenRules { allow: of(Decision::Allow), ask: of(Decision::Ask), deny: of(Decision::Deny) }
}
