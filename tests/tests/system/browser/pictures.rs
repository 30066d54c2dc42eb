//! What a person sees of pictures that decoders get wrong: turned photographs (I5), inks (I4), sixteen bits (I6), moving ones (I7; that
//! their bytes stand still is held where they are taken in).

use super::driver::Browser;
use super::kitchen::Kitchen;
use super::{WALL, wait_for_page};

/// 40 by 20 pixels, the left half red and the right half blue, with EXIF orientation 6: upright it is 20 by 40, red above.
const TURNED: &str = "\
    /9j/4QAiRXhpZgAASUkqAAgAAAABABIBAwABAAAABgAAAAAAAAD/4AAQSkZJRgABAgAAAQABAAD/wAARCAAUACgDABEAAREBAhEB\
    /9sAQwADAgIDAgIDAwMDBAMDBAUIBQUEBAUKBwcGCAwKDAwLCgsLDQ4SEA0OEQ4LCxAWEBETFBUVFQwPFxgWFBgSFBUU/9sAQwED\
    BAQFBAUJBQUJFA0LDRQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU/8QAHwAAAQUBAQEB\
    AQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAk\
    M2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKj\
    pKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAA\
    AAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl\
    8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmq\
    srO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMAAAERAhEAPwD50r8MP9UwoA4H4q/8wv8A\
    7a/+yV/cf0Zf+Zx/3A/9zH8c/SG/5lX/AHG/9xHAV/cZ/HQUAe+1/hyf7FhQBwPxV/5hf/bX/wBkr+4/oy/8zj/uB/7mP45+kN/z\
    Kv8AuN/7iOAr+4z+OgoA99r/AA5P9iwoA4H4q/8AML/7a/8Aslf3H9GX/mcf9wP/AHMfxz9Ib/mVf9xv/cRwFf3Gfx0FAH//2Q==\
    ";

/// 16 by 16 pixels of magenta and yellow ink with Adobe's marker: red.
const INKS: &str = "\
    /9j/4AAQSkZJRgABAgAAAQABAAD/7gAOQWRvYmUAAAAAAAAA/8AAFAgAEAAQBAARAQERAQIRAQMRAP/bAEMAAwICAwICAwMDAwQD\
    AwQFCAUFBAQFCgcHBggMCgwMCwoLCw0OEhANDhEOCwsQFhARExQVFRUMDxcYFhQYEhQVFP/bAEMBAwQEBQQFCQUFCRQNCw0UFBQU\
    FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYH\
    CAkKC//EALUQAAIBAwMCBAMFBQQEAAABfQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkq\
    NDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrC\
    w8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/EAB8BAAMBAQEBAQEBAQEAAAAAAAABAgMEBQYHCAkKC//EALUR\
    AAIBAgQEAwQHBQQEAAECdwABAgMRBAUhMQYSQVEHYXETIjKBCBRCkaGxwQkjM1LwFWJy0QoWJDThJfEXGBkaJicoKSo1Njc4OTpD\
    REVGR0hJSlNUVVZXWFlaY2RlZmdoaWpzdHV2d3h5eoKDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJ\
    ytLT1NXW19jZ2uLj5OXm5+jp6vLz9PX29/j5+v/aAA4EABEBEQIRAwAAPwD/AFTP8qj/ACqP1ToAAoAAoAAr/9k=\
    ";

/// 20 by 10 pixels of 16 bits a channel, all FF80, 0080, 0080: red.
const DEEP: &str = "\
    iVBORw0KGgoAAAANSUhEUgAAABQAAAAKEAIAAABrpzXyAAAAJUlEQVR4nO3NAQkAAAjEwEcMbnPFEsrDtgCXXdrPCz0FDAzsDw8I\
    JwKWQN2IxwAAAABJRU5ErkJggg==\
    ";

/// 12 by 8 pixels, a red picture and a blue one in turns; the red one is the default image.
const MOVING: &str = "\
    iVBORw0KGgoAAAANSUhEUgAAAAwAAAAICAIAAABChommAAAACGFjVEwAAAACAAAAAPONk3AAAAAaZmNUTAAAAAAAAAAMAAAACAAA\
    AAAAAAAAAAEAFAAADZ45+gAAAB1JREFUeJzdyrENAAAAATAR/7/MCcw6V0bH4ZynADPIARLalnVrAAAAGmZjVEwAAAABAAAADAAA\
    AAgAAAAAAAAAAAABABQAAJbt0y4AAAAiZmRBVAAAAAJ4nN3KsQ0AAAzCsKjq/y/DCTDj2Q8iOQrbyTHKARKicmcqAAAAAElFTkSu\
    QmCC\
    ";

/// A pixel of the picture on the page, as the browser has drawn it.
const PIXEL: &str = "(() => { const i = document.querySelector('#image img'), c = document.createElement('canvas'); \
    c.width = i.naturalWidth; c.height = i.naturalHeight; const x = c.getContext('2d'); x.drawImage(i, 0, 0); \
    return [...x.getImageData(PLACE, 1, 1).data].slice(0, 3).map((l) => l > 200 ? 2 : l < 60 ? 0 : 1).join(''); })()";
/// Places and what is seen there.
type Pixels = &'static [(&'static str, &'static str)];
const RED: &str = "200";
const BLUE: &str = "002";

#[tokio::test]
async fn turned_inked_deep_and_moving_pictures_are_seen_as_they_were_meant() {
    let Some(browser) = Browser::open(WALL).await else { return };
    let kitchen = Kitchen::open("kitchen", &["display.image"]).await;
    browser.client.goto(&kitchen.display()).await.unwrap();
    wait_for_page(&kitchen).await;
    let owner = kitchen.owner();
    let rows: [(&str, &str, (u32, u32), Pixels); 4] = [
        ("image/jpeg", TURNED, (20, 40), &[("10, 5", RED), ("10, 34", BLUE)]),
        ("image/jpeg", INKS, (16, 16), &[("8, 8", RED)]),
        ("image/png", DEEP, (20, 10), &[("10, 5", RED)]),
        ("image/png", MOVING, (12, 8), &[("6, 4", RED)]),
    ];
    for (mime, data, (width, height), pixels) in rows {
        owner.show_image(mime, data).await.unwrap();
        let size =
            "[document.querySelector('#image img').naturalWidth, document.querySelector('#image img').naturalHeight]";
        let found = browser.js(&format!("return {size}.join('x')")).await;
        assert_eq!(found, format!("{width}x{height}"), "{mime}");
        for (place, wanted) in pixels {
            let found = browser.js(&format!("return {}", PIXEL.replace("PLACE", place))).await;
            assert_eq!(found, *wanted, "{mime} {width}x{height} at {place}");
        }
        browser.shot(&format!("picture-{width}x{height}")).await;
    }
    browser.client.goto("about:blank").await.unwrap();
    kitchen.close().await;
    browser.close().await;
}
