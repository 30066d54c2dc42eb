//! What a person sees of pictures that decoders get wrong: turned photographs (I5), inks (I4), sixteen bits (I6), moving ones (I7).

use super::driver::Browser;
use super::kitchen::Kitchen;
use super::{WALL, wait_for_page};

/// 40 by 20 pixels, the left half red and the right half blue, with EXIF orientation 6: upright it is 20 by 40, red above.
const TURNED: &str = "\
    /9j/4QAiRXhpZgAASUkqAAgAAAABABIBAwABAAAABgAAAAAAAAD/4AAQSkZJRgABAgAAAQABAAD/wAARCAAUACgDABEAAREBAhEB\
    /9sAQwADAgIDAgIDAwMDBAMDBAUIBQUEBAUKBwcGCAwKDAwLCgsLDQ4SEA0OEQ4LCxAWEBETFBUVFQwPFxgWFBgSFBUU/9sAQwED\
    BAQFBAUJBQUJFA0LDRQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU/8QAFwABAQEBAAAA\
    AAAAAAAAAAAAAAYHCP/EABgQAQADAQAAAAAAAAAAAAAAAAAHRYPC/8QAFwEBAQEBAAAAAAAAAAAAAAAAAAgJB//EABgRAQADAQAA\
    AAAAAAAAAAAAAAAIRYPD/9oACAEAAAA/AOdBAyrV68IAb6IGVavXhADfRAyrV68IAf/aAAgBAREAPwDhguOMtxh2XGMORccZbjDs\
    uMYci44y3GHZcY//2gAIAQIRAD8A1TEcyGqtuSOhsWI5kNVbckdDYsRzIaq25I6H/9k=\
    ";

/// 16 by 16 pixels of magenta and yellow ink with Adobe's marker: red.
const INKS: &str = "\
    /9j/4AAQSkZJRgABAgAAAQABAAD/7gAOQWRvYmUAAAAAAAAA/8AAFAgAEAAQBAARAQERAQIRAQMRAP/bAEMAAwICAwICAwMDAwQD\
    AwQFCAUFBAQFCgcHBggMCgwMCwoLCw0OEhANDhEOCwsQFhARExQVFRUMDxcYFhQYEhQVFP/bAEMBAwQEBQQFCQUFCRQNCw0UFBQU\
    FBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFP/EABUAAQEAAAAAAAAAAAAAAAAAAAAJ/8QAFBAB\
    AAAAAAAAAAAAAAAAAAAAAP/EABUBAQEAAAAAAAAAAAAAAAAAAAAJ/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAgBABEAPwCqYD//\
    2gAIAQERAD8AlUA//9oACAECEQA/AJVAP//aAAgBAwAAPwCqYD//2Q==\
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
    // Control: this browser moves such a picture where nothing has made it still.
    browser
        .client
        .goto(&format!("data:text/html,<div id=image><img src='data:image/png;base64,{MOVING}'></div>"))
        .await
        .unwrap();
    browser.until(&format!("{} === '{BLUE}'", PIXEL.replace("PLACE", "6, 4"))).await;
    kitchen.close().await;
    browser.close().await;
}
