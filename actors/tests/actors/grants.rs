//! Each step on the way to a call is refused before the one it needs (CASES G1), and nothing but the keeper's word is a grant
//! (G2, G4).

use latchkey_actors::{Command, FailCode, Reply};
use serde_json::json;
use wire::{ErrorCode, OwnerRequest};

use crate::clients::{activate, error, health, invoke, owner, show, snapshot, value, word};
use crate::rig::{Rig, secret};

const ALL: [(&str, &str); 6] = [
    ("device.health", "{}"),
    ("camera.snapshot", "{}"),
    ("custom.test.ears", "{}"),
    ("display.text", r#"{"text":"hello"}"#),
    ("display.image", r#"{"mime":"image/png","data":"AAAA"}"#),
    ("custom.test.lamp", r#"{"text":"on"}"#),
];

async fn words(rig: &Rig) -> Vec<&'static str> {
    let mut words = Vec::new();
    for (name, arguments) in ALL {
        words.push(word(&rig.ask(invoke(name, serde_json::from_str(arguments).unwrap())).await));
    }
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_approve_grant_and_activate_open_one_door_each() {
    let rig = Rig::new().await;
    assert_eq!(words(&rig).await, ["signature"; 6], "nobody's device obeys nobody");
    let pairing = rig.pair().await;
    let id = rig.id();
    value(rig.claim(1, id, &pairing).await);
    assert_eq!(words(&rig).await, ["signature"; 6], "a claim that waits gives nothing");
    rig.approve(&id.to_string()).await;
    let denied = ["ok", "denied", "denied", "denied", "denied", "denied"];
    assert_eq!(words(&rig).await, denied, "G1: an owned device starts with everything off");
    value(rig.ask(activate(60_000)).await);
    assert_eq!(words(&rig).await, denied, "activation grants nothing");
    value(rig.ask(OwnerRequest::Deactivate).await);
    rig.grant("camera").await;
    rig.grant("display.text").await;
    assert_eq!(words(&rig).await, ["ok", "not_active", "denied", "not_active", "denied", "denied"]);
    value(rig.ask(activate(60_000)).await);
    assert_eq!(words(&rig).await, ["ok", "ok", "denied", "ok", "denied", "denied"]);
    assert_eq!((rig.camera.begun(), rig.text.begun(), rig.image.begun()), (1, 1, 0));
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_not_heard_also_where_the_owner_is() {
    let rig = Rig::new().await.ready().await;
    assert_eq!(word(&rig.ask_as(&secret(9), health()).await), "signature");
    assert_eq!(word(&rig.ask_as(&secret(9), OwnerRequest::Release).await), "signature");
    assert_eq!(word(&rig.ask_as(&owner(), health()).await), "ok");
    assert_eq!(rig.health.begun(), 1);
    assert_eq!(rig.status().await.waiting, 0);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_no_argument_says_that_it_is_approved() {
    let rig = Rig::new().await;
    rig.own(1).await;
    value(rig.ask(activate(60_000)).await);
    for member in ["approved", "approvalDecision", "grant", "force", "Approved"] {
        for granted in [false, true] {
            if granted {
                rig.grant("camera").await;
            } else {
                rig.revoke("camera").await;
            }
            let id = rig.id();
            let told = rig.ask_under(id, invoke("camera.snapshot", json!({ member: true }))).await;
            let refusal = told.unwrap().unwrap_err();
            assert_eq!(refusal.error, ErrorCode::InvalidArguments, "{member}");
            assert!(refusal.message.starts_with(member), "{}", refusal.message);
            assert_eq!(rig.story(id).await, ["invalid_arguments"], "the attempt is on record");
        }
    }
    // In the envelope's body the member is none that the message defines.
    let head = rig.head();
    let body = String::from_utf8(snapshot().to_body(&head)).unwrap();
    let forced = body.replacen('{', r#"{"approved":true,"#, 1);
    assert_eq!(word(&rig.send(&owner(), &head, forced.as_bytes()).await), "member");
    assert_eq!(rig.camera.begun(), 0);
    assert_eq!(
        word(&rig.send(&owner(), &head, body.as_bytes()).await),
        "ok",
        "the same without it, and the refusal spent nothing"
    );
    assert_eq!(rig.camera.effects(), 1);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_stay_inside_their_bounds() {
    let rig = Rig::new().await.ready().await;
    let text = |length: usize| json!({ "text": "x".repeat(length) });
    let image =
        |mime: &str, length: usize| json!({ "mime": mime, "data": wire::text::base64_encode(&vec![0; length]) });
    let rows = [
        ("display.text", json!({}), "text"),
        ("display.text", json!({ "text": 5 }), "text"),
        ("display.text", text(4_097), "text"),
        ("display.text", json!({ "text": "a\u{0}b" }), "text"),
        ("display.text", json!({ "text": "a", "size": 3 }), "size"),
        ("display.image", image("image/gif", 3), "mime"),
        ("display.image", image("image/png", 262_145), "data"),
        ("display.image", json!({ "mime": "image/png", "data": "AAA" }), "data"),
        ("camera.snapshot", json!({ "facing": "front" }), "facing"),
        ("device.health", json!({ "deep": true }), "deep"),
    ];
    for (name, arguments, member) in rows {
        let told = rig.ask(invoke(name, arguments)).await.unwrap().unwrap_err();
        assert_eq!(told.error, ErrorCode::InvalidArguments, "{name} {member}");
        assert!(told.message.starts_with(member), "{name}: {}", told.message);
    }
    assert_eq!(rig.text.begun() + rig.image.begun() + rig.camera.begun() + rig.health.begun(), 0);
    let controls =
        [("display.text", text(4_096)), ("display.image", image("image/png", 262_144)), ("camera.snapshot", json!({}))];
    for (name, arguments) in controls {
        assert_eq!(word(&rig.ask(invoke(name, arguments)).await), "ok", "{name}");
    }
    assert_eq!(error(rig.ask(invoke("shell.exec", json!({}))).await), ErrorCode::Unsupported);
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keeper_grants_what_there_is_to_whom_there_is() {
    let rig = Rig::new().await;
    let grant = async |name: &str| match rig.keeper(Command::Grant { name: name.to_owned() }).await {
        Reply::Granted { grant, changed } => Ok((grant.name, grant.on, changed)),
        Reply::Failed { code, .. } => Err(code),
        other => panic!("{other:?}"),
    };
    assert_eq!(grant("camera").await, Err(FailCode::NotNow), "there is nobody to grant to");
    rig.own(1).await;
    assert_eq!(grant("camera.snapshot").await, Ok(("camera".to_owned(), true, true)), "a capability's name serves");
    assert_eq!(grant("camera").await, Ok(("camera".to_owned(), true, false)));
    assert_eq!(grant("speaker.say").await, Err(FailCode::NotFound));
    assert_eq!(grant("Camera!").await, Err(FailCode::Invalid));
    let lines = rig.receipts().await;
    let grants = lines.iter().filter(|line| line.what.as_deref() == Some("grant camera")).count();
    assert_eq!(grants, 1, "what changes nothing leaves no record");
    rig.down().await;
}

/// The handler is asked a thousand times while the grant goes on and off: what was revoked stays revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_revoked_grant_stays_revoked_under_a_thousand_racing_calls() {
    let rig = Rig::new().await.ready().await;
    let mut seen = 0;
    for round in 0..1_000 {
        let call = async { word(&rig.ask(show("x")).await) };
        let (told, ()) = tokio::join!(call, rig.revoke("display.text"));
        assert!(matches!(told, "ok" | "denied" | "cancelled" | "unknown_outcome"), "{told}");
        let effects = rig.text.effects();
        assert!(told != "denied" || effects == seen, "round {round}: a denied call had an effect");
        if round % 50 == 0 {
            assert_eq!(error(rig.ask(show("y")).await), ErrorCode::Denied, "round {round}");
            assert_eq!(rig.text.effects(), effects);
            assert!(!rig.status().await.grants_on.contains(&"display.text".to_owned()));
        }
        seen = rig.text.effects();
        rig.grant("display.text").await;
    }
    rig.revoke("display.text").await;
    assert_eq!(error(rig.ask(show("z")).await), ErrorCode::Denied);
    assert_eq!(rig.text.effects(), seen);
    rig.grant("display.text").await;
    assert_eq!(word(&rig.ask(show("z")).await), "ok");
    rig.verifies().await;
    rig.down().await;
}
