//! Whatever was said is heard once, handed back, or taken back.

use std::collections::BTreeMap;

use terret_agent::machine::Record;

use crate::life::text;
use crate::world::{Said, Seen, World};

#[derive(Default)]
struct Fate {
    queued: u32,
    delivered: u32,
    taken_back: u32,
    withdrawn: u32,
    left_at_end: u32,
    /// The run at whose end it was left has told its end.
    left_and_told: bool,
}

/// Follows every message through the records, by their numbers, and compares with what people were told.
pub(crate) fn check(world: &World) {
    let (records, told) = {
        let inner = world.lock();
        (inner.records.clone(), inner.told.clone())
    };
    let mut fates: BTreeMap<String, Fate> = BTreeMap::new();
    let mut queue: BTreeMap<u64, String> = BTreeMap::new();
    let mut numbers = 0..;
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::RunStarted { prompt: Some(message), .. } | Record::Queued { message, .. } => {
                let text = text(message).unwrap();
                fates.entry(text.clone()).or_default().queued += 1;
                queue.insert(numbers.next().unwrap(), text);
            }
            Record::Requeued { id, message } => {
                world.see(Seen::Requeued);
                let text = text(message).unwrap();
                fates.entry(text.clone()).or_default().queued += 1;
                let before = queue.insert(*id, text).unwrap();
                fates.get_mut(&before).unwrap().taken_back += 1;
            }
            Record::Withdrawn { id } => {
                let fate = fates.get_mut(&queue.remove(id).unwrap()).unwrap();
                (fate.taken_back, fate.withdrawn) = (fate.taken_back + 1, fate.withdrawn + 1);
            }
            Record::Delivered { ids } => {
                ids.iter().for_each(|id| fates.get_mut(&queue.remove(id).unwrap()).unwrap().delivered += 1);
            }
            Record::RunEnded { .. } => {
                for text in std::mem::take(&mut queue).into_values() {
                    let fate = fates.get_mut(&text).unwrap();
                    fate.left_at_end += 1;
                    fate.left_and_told = told.iter().any(|run| run.contains(&at));
                }
            }
            _ => {}
        }
    }
    let starts = records.iter().filter(|record| matches!(record, Record::RunStarted { .. })).count();
    let ends = records.iter().filter(|record| matches!(record, Record::RunEnded { .. })).count();
    if starts != ends {
        world.problem(format!("{starts} runs have started, and {ends} have ended"));
    }
    for (text, fate) in &fates {
        if fate.queued != 1 || fate.delivered + fate.taken_back + fate.left_at_end != 1 {
            world.problem(format!("{text} was kept {} times and delivered {} times", fate.queued, fate.delivered));
        }
    }
    let mut said = world.lock().said.clone();
    for (text, said) in &mut said {
        // Whoever takes back what was left at the end is handed it, and there is no record of that.
        let recorded = fates.get(text).map_or(0, |fate| fate.withdrawn);
        said.handed_back += said.withdrawn.saturating_sub(recorded);
    }
    // Each of these was handed back in the place of one that waited when its run ended.
    let handed_back_in_place = |(text, said): &(&String, &Said)| {
        said.changes && said.handed_back > 0 && fates.get(*text).is_none_or(|fate| fate.queued == 0)
    };
    let mut replaced = said.iter().filter(handed_back_in_place).count();
    for (text, said) in said {
        let fate = fates.remove(&text).unwrap_or_default();
        if said.handed_back > 0 {
            world.see(Seen::HandedBack);
        }
        let kept = fate.delivered + fate.taken_back + fate.left_at_end;
        let met = fate.delivered + fate.taken_back + said.handed_back;
        let right = match () {
            () if fate.left_and_told && said.handed_back == 0 => {
                let was_replaced = replaced > 0;
                replaced = replaced.saturating_sub(1);
                was_replaced
            }
            // The journal has it once, or nobody was told so.
            () if said.crashed => kept <= 1,
            () if said.doubtful => kept + said.handed_back >= 1 && kept <= 1 || said.changes,
            // A text that was to take the place of another one may have found that one gone.
            () if said.changes => met <= 1,
            () => met == 1,
        };
        if !right {
            world.problem(format!(
                "{text} was delivered {} times, taken back {}, handed back {}",
                fate.delivered, fate.taken_back, said.handed_back
            ));
        }
    }
}
