#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terret_fuzz::check("openai_responses", data));
