//! What must not compile: a permit made, copied or held anywhere but in the authority's own module.

#[test]
fn a_permit_cannot_be_made_or_copied_outside() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
