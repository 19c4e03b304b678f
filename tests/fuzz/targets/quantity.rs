//! Fuzzes Kubernetes' quantities. An amount that was read and written again is unchanged, and one
//! amount has one value in all of its notations.
//! Touches: its input.
#![no_main]

use gpuslice_readers::base::quantity::{bytes, text};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

libfuzzer_sys::fuzz_target!(|given: &str| {
    let read = |text: String| bytes(&Quantity(text));
    let amount = read(given.to_owned());
    if let Some(amount) = amount {
        assert_eq!(bytes(&text(amount)), Some(amount));
        assert!(!given.starts_with('-'));
    }
    if given.starts_with(|letter: char| letter.is_ascii_digit()) {
        assert_eq!(read(format!("+{given}")), amount);
        // The API server keeps no more digits than these.
        if given.bytes().filter(u8::is_ascii_digit).count() < 30 {
            assert_eq!(read(format!("0{given}")), amount);
        }
        if let Ok(plain) = given.parse::<u64>()
            && given.len() <= 30
        {
            assert_eq!(amount.map(|amount| amount.get()), Some(plain));
            let larger = |suffix: &str| read(format!("{given}{suffix}")).map(|amount| amount.get());
            assert_eq!(larger("Ki"), plain.checked_mul(1024));
            assert_eq!(larger("k"), plain.checked_mul(1000));
            assert_eq!(larger("m"), Some(plain.div_ceil(1000)));
            assert_eq!(larger("e3"), plain.checked_mul(1000));
        }
    }
});
