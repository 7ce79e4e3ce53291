//! Modules and their functions.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS, code};
use super::kernels::probe;
use super::subject::Subject;
use crate::driver::DriverError;

on_every_subject![
    a_function_of_a_module_can_be_launched,
    a_function_asked_for_twice_is_the_same,
    the_same_text_may_be_loaded_twice_and_each_module_goes_by_itself,
    a_function_that_is_not_in_the_module_is_not_found,
    a_function_can_be_launched_first_while_a_stream_is_held,
    functions_can_be_asked_for_while_a_stream_is_held,
    text_that_breaks_off_is_refused_with_the_compilers_words,
    text_that_is_no_ptx_is_refused,
];

fn a_function_of_a_module_can_be_launched(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let module = on.driver.module_load(probe()).unwrap();
    let increment = on.driver.module_function(&module, c"increment").unwrap();
    on.increment_by(&increment, x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    on.driver.module_unload(module).unwrap();
}

fn a_function_asked_for_twice_is_the_same(on: &Subject) {
    let module = on.driver.module_load(probe()).unwrap();
    let [first, second] = [c"increment"; 2].map(|name| on.driver.module_function(&module, name));
    assert_eq!(first.unwrap(), second.unwrap());
    on.driver.module_unload(module).unwrap();
}

fn the_same_text_may_be_loaded_twice_and_each_module_goes_by_itself(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let [first, second] = [(); 2].map(|()| on.driver.module_load(probe()).unwrap());
    let increment = on.driver.module_function(&second, c"increment").unwrap();
    on.driver.module_unload(first).unwrap();
    on.increment_by(&increment, x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    on.driver.module_unload(second).unwrap();
    on.increment(x, WORDS, &s); // of a third, which stays
    assert_eq!(on.read(x, N, &s), [3, 1, 1, 1].repeat(N / 4));
}

fn a_function_that_is_not_in_the_module_is_not_found(on: &Subject) {
    let module = on.driver.module_load(probe()).unwrap();
    for name in [c"not_in_the_module", c"Increment"] {
        let told = code(on.driver.module_function(&module, name));
        assert_eq!(told, Some(DriverError::NOT_FOUND), "{name:?}");
    }
    assert!(on.driver.module_function(&module, c"increment").is_ok());
    on.driver.module_unload(module).unwrap();
}

fn a_function_can_be_launched_first_while_a_stream_is_held(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(1, N, &t);
    let module = on.driver.module_load(probe()).unwrap();
    let increment = on.driver.module_function(&module, c"increment").unwrap();
    let held = on.hold(&s);
    let end = on.record(&s);
    on.increment_by(&increment, x, WORDS, &t);
    assert_eq!(on.read(x, N, &t), [2, 1, 1, 1].repeat(N / 4));
    held.open();
    on.finish(&end);
    on.driver.module_unload(module).unwrap();
}

fn functions_can_be_asked_for_while_a_stream_is_held(on: &Subject) {
    let s = on.stream();
    let module = on.driver.module_load(probe()).unwrap();
    let held = on.hold(&s);
    let end = on.record(&s);
    assert!(on.driver.module_function(&module, c"increment").is_ok());
    held.open();
    on.finish(&end);
    on.driver.module_unload(module).unwrap();
}

fn text_that_breaks_off_is_refused_with_the_compilers_words(on: &Subject) {
    let text = c".version 8.0\n.target sm_75\n.visible .entry corrupt(.param .u64 p0";
    let refused = on.driver.module_load(text).unwrap_err();
    assert_eq!(refused.error.code(), DriverError::INVALID_PTX);
    // A simulated device has no compiler.
    assert_eq!(refused.log.is_empty(), on.driver.info().simulated, "{}", refused.log);
    on.driver.module_unload(on.driver.module_load(probe()).unwrap()).unwrap();
}

fn text_that_is_no_ptx_is_refused(on: &Subject) {
    for text in [c"hello", c"// nothing", c""] {
        let refused = on.driver.module_load(text).unwrap_err();
        let codes = [DriverError::INVALID_PTX, DriverError::INVALID_IMAGE];
        assert!(codes.contains(&refused.error.code()), "{text:?}: {}", refused.error);
    }
    on.driver.module_unload(on.driver.module_load(probe()).unwrap()).unwrap();
}
