//! The targets' checks hold for the committed seeds, and for the beginning and the end of each of them.

use std::fs;
use std::path::Path;

use terret_fuzz::{TARGETS, check};

#[test]
fn seeds() {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        let seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!seeds.is_empty(), "{target} has no seeds");
        for path in seeds {
            println!("{}", path.display());
            let seed = fs::read(path).unwrap();
            check(target, &seed);
            check(target, &seed[seed.len() / 2..]);
            check(target, &seed[..seed.len() / 2]);
        }
    }
}
