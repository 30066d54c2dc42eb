//! Settings read anew in a living device.

use std::sync::{Arc, Mutex};

use actors::{Command, Reply};
use config::Settings;

use crate::device::{Bench, Wish, exchange, folder, settings, status};

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_what_it_can_names_what_it_cannot_and_a_failed_one_changes_nothing() {
    let folder = folder();
    let wanted: Arc<Mutex<Result<Settings, String>>> = Arc::new(Mutex::new(Ok(settings(folder.path(), &[]))));
    let given = Arc::clone(&wanted);
    let reread = Arc::new(move |_before: &Settings| given.lock().unwrap().clone());
    let bench = Bench::start(Wish { reread: Some(reread), ..Wish::default() }).await;
    let name = async || match bench.command(Command::Status).await {
        Reply::Status(status) => status.name,
        other => panic!("{other:?}"),
    };
    let by_name = "GET /v1/challenge HTTP/1.1\r\nHost: hall.lan\r\nConnection: close\r\n\r\n";
    let rows: [(&str, Result<&[&str], &str>, Result<(&str, &str), &str>, &str, u16); 5] = [
        ("control: the same settings", Ok(&[]), Ok(("", "")), "kitchen", 403),
        ("a broken file", Err("latchkey.toml:7: unknown key"), Err("latchkey.toml:7: unknown key"), "kitchen", 403),
        (
            "what can change",
            Ok(&["device.name=\"hall\"", "link.direct.hosts=[\"hall.lan\"]"]),
            Ok(("device.name link.direct.hosts", "")),
            "hall",
            200,
        ),
        (
            "what cannot, beside what can",
            Ok(&["device.name=\"attic\"", "link.direct.scheme=\"https\"", "keeper.display=false"]),
            Ok(("device.name link.direct.hosts", "link.direct.scheme keeper.display")),
            "attic",
            403,
        ),
        (
            "the same again: still waiting for a restart",
            Ok(&["device.name=\"attic\"", "link.direct.scheme=\"https\"", "keeper.display=false"]),
            Ok(("", "link.direct.scheme keeper.display")),
            "attic",
            403,
        ),
    ];
    for (row, sets, outcome, name_after, by_name_after) in rows {
        *wanted.lock().unwrap() = sets.map(|sets| settings(folder.path(), sets)).map_err(str::to_owned);
        let reloaded = bench.running.reload().await.map(|reload| (reload.changed.join(" "), reload.restart.join(" ")));
        let outcome = outcome.map(|(changed, restart)| (changed.to_owned(), restart.to_owned())).map_err(str::to_owned);
        assert_eq!(reloaded, outcome, "{row}");
        assert_eq!(name().await, name_after, "{row}");
        assert_eq!(status(&exchange(bench.direct(), by_name).await), by_name_after, "{row}: the host name");
    }
    bench.stop().await;
}
