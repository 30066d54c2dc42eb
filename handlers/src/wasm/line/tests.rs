#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::DuplexStream;

use super::super::frame::{Done, Ended, FROM_CHILD_BYTES_MAX, FromChild, HttpTrouble};
use super::*;

/// Our line, and the two ends that a process would hold.
fn line(room_bytes: usize) -> (Line, DuplexStream, DuplexStream) {
    let (theirs_out, ours_in) = tokio::io::duplex(room_bytes);
    let (ours_out, theirs_in) = tokio::io::duplex(room_bytes);
    (Line::new(Box::new(ours_in), Box::new(ours_out)), theirs_out, theirs_in)
}

fn value(bytes: usize) -> FromChild {
    let ended = Ended::Value(vec![b'x'; bytes]);
    FromChild::Done(Done { number: 1, ended, log: Vec::new(), log_dropped: 0, cpu_us: 0, memory_bytes: 0 })
}

fn encoded(message: &FromChild) -> Vec<u8> {
    frame::encode(message, FROM_CHILD_BYTES_MAX).unwrap()
}

async fn hear(line: &mut Line) -> Result<FromChild, FrameError> {
    line.hear(FROM_CHILD_BYTES_MAX).await
}

#[tokio::test]
async fn frames_come_whole_however_they_are_cut() {
    let bytes = [encoded(&FromChild::Loaded), encoded(&value(3)), encoded(&FromChild::Loaded)].concat();
    for piece in [1, 3, 5, bytes.len()] {
        let (mut line, mut out, _in) = line(1024);
        for part in bytes.chunks(piece) {
            out.write_all(part).await.unwrap();
        }
        drop(out);
        assert!(matches!(hear(&mut line).await.unwrap(), FromChild::Loaded));
        assert!(
            matches!(hear(&mut line).await.unwrap(), FromChild::Done(done) if done.ended == Ended::Value(b"xxx".to_vec()))
        );
        assert!(matches!(hear(&mut line).await.unwrap(), FromChild::Loaded));
        assert!(matches!(hear(&mut line).await, Err(FrameError::Ended)));
    }
}

#[tokio::test]
async fn what_is_no_frame_is_refused_before_it_is_stored() {
    let too_long = u32::try_from(FROM_CHILD_BYTES_MAX + 1).unwrap().to_be_bytes().to_vec();
    let longest = u32::try_from(FROM_CHILD_BYTES_MAX).unwrap().to_be_bytes().to_vec();
    let behind = {
        let mut bytes = encoded(&FromChild::Loaded);
        bytes.push(0);
        bytes[3] += 1;
        bytes
    };
    let rows: [(Vec<u8>, &str); 7] = [
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "where 2097152 are the most"),
        (too_long, "a frame of 2097153 bytes"),
        (longest, "the pipe ended"),
        (vec![0, 0, 0, 0], "a frame of 0 bytes"),
        (vec![0, 0, 0, 1, 0xff], "no message"),
        (behind, "bytes are left over"),
        (encoded(&value(9))[..9].to_vec(), "the pipe ended"),
    ];
    for (bytes, why) in rows {
        let (mut line, mut out, _in) = line(1024);
        out.write_all(&bytes).await.unwrap();
        drop(out);
        let error = hear(&mut line).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error} in place of {why}");
        assert!(line.reader.bytes.capacity() <= 2 * READ_BYTES, "an announced length alone costs nothing");
    }
}

#[tokio::test]
async fn a_process_that_says_much_before_it_reads_holds_nothing_up() {
    let (mut line, mut out, mut theirs) = line(16);
    let asked = frame::encode(&ToChild::Load { native: vec![7; 100_000] }, frame::TO_CHILD_BYTES_MAX).unwrap();
    let bytes = asked.len();
    line.say_encoded(asked).unwrap();
    line.say(&ToChild::Cancel { number: 1 }).unwrap();
    let process = tokio::spawn(async move {
        // Says all of it first, then reads all of it, then says one thing more.
        out.write_all(&encoded(&value(100_000))).await.unwrap();
        let mut read = vec![0; bytes];
        theirs.read_exact(&mut read).await.unwrap();
        out.write_all(&encoded(&FromChild::Loaded)).await.unwrap();
        (out, theirs)
    });
    assert!(matches!(hear(&mut line).await.unwrap(), FromChild::Done(_)));
    assert!(matches!(hear(&mut line).await.unwrap(), FromChild::Loaded));
    drop(process.await.unwrap());
}

#[tokio::test]
async fn a_wait_that_is_given_up_and_begun_again_loses_nothing() {
    let (mut line, mut out, mut theirs) = line(16);
    line.say(&ToChild::Http { number: 7, answer: Err(HttpTrouble::Denied) }).unwrap();
    let (said, mut written, mut read) = (encoded(&value(300)), 0, Vec::new());
    let mut piece = [0; 5];
    loop {
        if let Some(heard) = hear(&mut line).now_or_never() {
            assert!(matches!(heard.unwrap(), FromChild::Done(done) if done.ended == Ended::Value(vec![b'x'; 300])));
            break;
        }
        if let Some(bytes) = theirs.read(&mut piece).now_or_never() {
            read.extend_from_slice(&piece[..bytes.unwrap()]);
        }
        let rest = &said[written..];
        written += out.write(&rest[..rest.len().min(3)]).now_or_never().map_or(0, Result::unwrap);
        // Else the runtime counts all of this as one turn, and lets no pipe be ready any more.
        tokio::task::yield_now().await;
    }
    assert!(matches!(
        frame::decode::<ToChild>(&read[4..]).unwrap(),
        ToChild::Http { number: 7, answer: Err(HttpTrouble::Denied) }
    ));
}

#[tokio::test]
async fn the_last_words_of_a_process_are_heard_though_nothing_can_be_told_to_it_any_more() {
    let (mut line, mut out, theirs) = line(1024);
    drop(theirs);
    out.write_all(&encoded(&FromChild::Refused { why: "no handler".to_owned() })).await.unwrap();
    drop(out);
    line.say(&ToChild::Cancel { number: 1 }).unwrap();
    assert!(matches!(hear(&mut line).await.unwrap(), FromChild::Refused { .. }));
    assert!(matches!(hear(&mut line).await, Err(FrameError::Ended)));
}

#[tokio::test]
async fn a_process_that_never_reads_cannot_make_frames_pile_up() {
    let (mut line, _out, _theirs) = line(16);
    for _ in 0..WAITING_FRAMES_MAX {
        line.say(&ToChild::Cancel { number: 1 }).unwrap();
    }
    let error = line.say(&ToChild::Cancel { number: 1 }).unwrap_err();
    assert!(error.to_string().contains("asks without reading"), "{error}");
    let waits = tokio::time::timeout(Duration::from_millis(10), hear(&mut line)).await;
    assert!(waits.is_err(), "nothing comes, and nothing breaks");
}
