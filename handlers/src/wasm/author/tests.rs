#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;

use config::manifest::{Descriptor, Manifest};
use wire::{Declaration, Object};

use super::*;

/// A core module that answers with its arguments, with this instead of what it exports and imports.
fn core(exports: &str, imports: &str) -> String {
    format!(
        r#"(module {imports} (memory (export "memory") 2)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 64)
            {exports})"#
    )
}

const ECHO: &str = r#"(func (export "invoke") (param i32 i32) (result i32)
    (i32.store (i32.const 4) (local.get 0)) (i32.store (i32.const 8) (local.get 1)) (i32.const 0))"#;

const LOG: &str = r#"(import "device:handler/host@0.1.0" "log" (func (param i32 i32 i32)))"#;

const OLD_SYSTEM: &str = r#"(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))"#;

/// The names of what a component imports and exports at its top.
fn doors(component: &[u8]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut imports, mut exports, mut depth) = (BTreeSet::new(), BTreeSet::new(), 0);
    for payload in Parser::new(0).parse_all(component) {
        match payload.unwrap() {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                imports.extend(section.into_iter().map(|import| import.unwrap().name.name.to_owned()));
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                exports.extend(section.into_iter().map(|export| export.unwrap().name.name.to_owned()));
            }
            _ => {}
        }
    }
    (imports, exports)
}

/// The descriptions that a component carries.
fn descriptors(component: &[u8]) -> Vec<Vec<u8>> {
    let sections = Parser::new(0).parse_all(component).filter_map(|payload| match payload.unwrap() {
        Payload::CustomSection(section) if section.name() == DESCRIPTOR_SECTION => Some(section.data().to_vec()),
        _ => None,
    });
    sections.collect()
}

#[track_caller]
fn refused(made: Result<Vec<u8>, AuthorError>, why: &str) {
    let error = made.expect_err("it should be refused").to_string();
    assert!(error.contains(why), "not \"{why}\" but: {error}");
    assert!(!error.contains('\n'), "more than a line: {error}");
}

#[test]
fn a_core_module_becomes_a_component_that_imports_what_it_uses_and_no_more() {
    // The type of a failure is always there, as the world names it.
    let always = ["device:handler/types@0.1.0", "handler-error"];
    let rows: &[(&str, &[&str])] = &[("", &[]), (LOG, &["device:handler/host@0.1.0"])];
    for (imports, used) in rows {
        let text = core(ECHO, imports);
        for given in [text.clone().into_bytes(), wat::parse_str(&text).unwrap()] {
            let (found, exports) = doors(&wrap(&given).unwrap());
            let wanted: BTreeSet<String> = always.iter().chain(*used).map(|&name| name.to_owned()).collect();
            assert_eq!(found, wanted, "{imports}");
            assert_eq!(exports, BTreeSet::from(["invoke".to_owned()]), "{imports}");
        }
    }
}

#[test]
fn the_older_system_interface_is_translated() {
    let (imports, _) = doors(&wrap(core(ECHO, OLD_SYSTEM).as_bytes()).unwrap());
    assert!(imports.iter().any(|import| import.starts_with("wasi:random/random@0.2.")), "{imports:?}");
    assert!(!imports.contains(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME), "{imports:?}");
}

#[test]
fn what_is_a_component_already_stays_as_it_is_and_its_text_becomes_bytes() {
    let component = wrap(core(ECHO, "").as_bytes()).unwrap();
    assert_eq!(wrap(&component).unwrap(), component);
    let text = include_str!("wat/handler.wat");
    assert_eq!(wrap(text.as_bytes()).unwrap(), wat::parse_str(text).unwrap());
}

#[test]
fn what_cannot_become_a_handler_is_refused_with_its_reason() {
    let whole = wat::parse_str(core(ECHO, "")).unwrap();
    wrap(&whole).expect("the control is a handler");
    refused(wrap(&whole[..whole.len() - 3]), "damaged: unexpected end-of-file");
    refused(wrap(b"\x7fELF\xff\xfe"), "neither WebAssembly nor its text");
    refused(wrap(b""), "line 1, column 1");
    refused(wrap(b"(module\n  (func (export \"invoke\") (i32.cons 1)))"), "line 2, column 28: unknown operator");
    refused(wrap(core("", "").as_bytes()), "exports no function `invoke`");
    refused(
        wrap(core(r#"(func (export "invoke") (param i32) (result i32) i32.const 0)"#, "").as_bytes()),
        "does not fit",
    );
    refused(wrap(core(ECHO, r#"(import "evil" "exec" (func))"#).as_bytes()), "evil");
    let no_realloc = format!(r#"(module (memory (export "memory") 1) {ECHO})"#);
    refused(wrap(no_realloc.as_bytes()), "realloc");
}

#[test]
fn a_description_is_put_into_a_component_once_and_all_else_stays() {
    let component = wrap(core(ECHO, LOG).as_bytes()).unwrap();
    let first = pack(&component, br#"{"description": "first"}"#).unwrap();
    assert_eq!(descriptors(&first), [br#"{"description": "first"}"#.to_vec()]);
    assert_eq!(first[..component.len()], component, "what was there is not touched");

    // Longer than one byte of length can say.
    let long = format!(r#"{{"description": "{}"}}"#, "x".repeat(150));
    let second = pack(&first, long.as_bytes()).unwrap();
    assert_eq!(descriptors(&second), [long.into_bytes()], "it takes the place of the first");
    assert_eq!(second[..component.len()], component);
    assert_eq!(doors(&second), doors(&component));
    wasmparser::Validator::new().validate_all(&second).unwrap();

    let of_text = pack(include_bytes!("wat/handler.wat"), b"{}").unwrap();
    assert_eq!(descriptors(&of_text), [b"{}".to_vec()]);
}

#[test]
fn a_description_that_asks_for_more_or_goes_nowhere_is_refused() {
    let component = wrap(core(ECHO, "").as_bytes()).unwrap();
    pack(&component, br#"{"description": "fine"}"#).expect("the control is taken");
    refused(pack(&component, br#"{"description": "fine", "reach": {"read": ["/"]}}"#), "reach");
    refused(pack(&component, b"not JSON"), "");
    refused(pack(&component, &[b' '; DESCRIPTOR_BYTES_MAX + 1]), "8193 bytes, where 8192 are the most");
    refused(pack(core(ECHO, "").as_bytes(), b"{}"), "`latchkeyd handler wrap` makes one of it");
    refused(pack(&component[..component.len() - 3], b"{}"), "damaged");
}

/// Bounds and description as a device would declare them.
fn declared(manifest: &Manifest, name: &str) -> Declaration {
    manifest.declaration(&name.parse().unwrap(), &Descriptor::default()).unwrap()
}

#[test]
fn every_project_says_its_name_and_nothing_unfilled_and_its_manifest_declares() {
    for lang in Lang::ALL {
        let files = project("acme.lamp-2_b", lang).unwrap();
        let paths: BTreeSet<_> = files.iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths.len(), files.len(), "{lang}: two files of one name");
        for ProjectFile { path, contents } in &files {
            assert!(path.is_relative() && !contents.contains("{{"), "{lang}: {}", path.display());
            assert!(contents.ends_with('\n'), "{lang}: {}", path.display());
        }
        let read = |name: &str| {
            let found = files.iter().find(|file| file.path.to_str() == Some(name));
            found.unwrap_or_else(|| panic!("{lang}: no {name} in {paths:?}")).contents.clone()
        };
        let manifest = Manifest::parse(&read("custom.acme.lamp-2_b.toml")).unwrap();
        let declaration = declared(&manifest, "custom.acme.lamp-2_b");
        let mut arguments = Object::new();
        arguments.insert("level", 40);
        declaration.bounds.check(arguments).unwrap();
        let guide = read("README.md");
        assert!(guide.contains("latchkeyd grant custom.acme.lamp-2_b"), "{lang}");
        assert!(guide.lines().count() <= 20, "{lang}: a README is short");
        match lang {
            Lang::Js => {
                assert_eq!(read("wit/handler.wit"), WIT);
                let package: serde_json::Value = serde_json::from_str(&read("package.json")).unwrap();
                let build = package["scripts"]["build"].as_str().unwrap();
                assert!(build.contains("--output custom.acme.lamp-2_b.wasm"), "{build}");
            }
            Lang::Rust => {
                assert_eq!(read("wit/handler.wit"), WIT);
                let cargo: toml_edit::DocumentMut = read("Cargo.toml").parse().unwrap();
                assert_eq!(cargo["package"]["name"].as_str(), Some("acme-lamp-2_b"));
                read(".cargo/config.toml").parse::<toml_edit::DocumentMut>().unwrap();
                assert!(guide.contains("release/acme_lamp_2_b.wasm custom.acme.lamp-2_b.wasm"), "{guide}");
            }
            Lang::C => assert!(read("handler.c").contains("export_name")),
            Lang::Wat => {
                let component = wrap(read("custom.acme.lamp-2_b.wat").as_bytes()).unwrap();
                assert!(doors(&component).1.contains("invoke"));
            }
        }
    }
}

#[test]
fn a_name_is_two_words_that_a_capability_can_have_and_a_language_one_of_four() {
    project("acme.lamp", Lang::C).expect("the control is a name");
    for name in [
        "",
        "acme",
        "acme.",
        "acme.lamp.two",
        "Acme.lamp",
        "acme.9lamp",
        "acme/../x.lamp",
        "acme.{{name}}",
        "custom.acme.lamp",
    ] {
        let error = project(name, Lang::C).expect_err(name).to_string();
        assert!(error.contains("is not MAKER.ACTION"), "{name}: {error}");
    }
    for lang in Lang::ALL {
        assert_eq!(lang.to_string().parse::<Lang>().unwrap(), lang);
    }
    assert!("go".parse::<Lang>().unwrap_err().to_string().contains("none of js, rust, c and wat"));
}
