//! What a sound card says about itself: descriptors of the USB Audio Class 1.0, for one way out and one way in.

use crate::{
    about::{About, ENDPOINT, INTERFACE, OF_CLASS, OF_CLASS_ENDPOINT, headed, sized},
    usbip::Answer,
};

const PRODUCT: u16 = 0x0002;
const NAME: &str = "Test sound card";

/// One channel of whole numbers of 16 bits, in packets of a millisecond.
pub(crate) const RATE_HZ: u32 = 48_000;
pub(crate) const SAMPLE_BYTES: usize = 2;
pub(crate) const PACKET_SAMPLES: usize = 48;
/// A sample more than a millisecond has: a host whose clock runs fast sends that many at times.
const PACKET_BYTES_MAX: u16 = 98;

/// The endpoints that keep time, and by whose clock: the host's out, the card's own in.
const OUT: u8 = 0x01;
const IN: u8 = 0x82;
const ADAPTS: u8 = 0x09;
const OWN_CLOCK: u8 = 0x05;

/// The answer to one control request.
pub(crate) fn control(serial: &str, setup: [u8; 8]) -> Answer {
    // Of its class it knows none: it has no volume and one rate.
    about(serial).answer(setup).unwrap_or(Answer::Stall)
}

fn about(serial: &str) -> About<'_> {
    About { product: PRODUCT, class: [0; 3], name: NAME, serial, interfaces: 3, parts: parts() }
}

fn parts() -> Vec<u8> {
    // What arrives from the host goes to a loudspeaker, what a microphone hears goes to the host.
    const HOST: [u8; 2] = [0x01, 0x01];
    const LOUDSPEAKER: [u8; 2] = [0x01, 0x03];
    const MICROPHONE: [u8; 2] = [0x01, 0x02];
    let input = |number: u8, [low, high]: [u8; 2]| sized(OF_CLASS, &[0x02, number, low, high, 0, 1, 0, 0, 0, 0]);
    let output = |number: u8, [low, high]: [u8; 2], from: u8| sized(OF_CLASS, &[0x03, number, low, high, 0, from, 0]);
    let terminals = [input(1, HOST), output(2, LOUDSPEAKER, 1), input(3, MICROPHONE), output(4, HOST, 3)];
    [
        sized(INTERFACE, &[0, 0, 0, 0x01, 0x01, 0, 0]),
        headed(&[0x00, 0x01], &[2, 1, 2], &terminals),
        way(1, 1, OUT, ADAPTS),
        way(2, 4, IN, OWN_CLOCK),
    ]
    .concat()
}

/// One way: at rest without an endpoint, and with it while sound flows.
fn way(interface: u8, terminal: u8, endpoint: u8, timing: u8) -> Vec<u8> {
    let [first, second, third, _] = RATE_HZ.to_le_bytes();
    let [low, high] = PACKET_BYTES_MAX.to_le_bytes();
    [
        sized(INTERFACE, &[interface, 0, 0, 0x01, 0x02, 0, 0]),
        sized(INTERFACE, &[interface, 1, 1, 0x01, 0x02, 0, 0]),
        sized(OF_CLASS, &[0x01, terminal, 1, 0x01, 0x00]),
        sized(OF_CLASS, &[0x02, 0x01, 1, 2, 16, 1, first, second, third]),
        sized(ENDPOINT, &[endpoint, timing, low, high, 1, 0, 0]),
        sized(OF_CLASS_ENDPOINT, &[0x01, 0, 0, 0, 0]),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::kinds;

    #[test]
    fn descriptors_add_up() {
        let way = [4, 4, 0x24, 0x24, 5, 0x25];
        assert_eq!(kinds(&about("0041")), [[2, 4, 0x24, 0x24, 0x24, 0x24, 0x24].as_slice(), &way, &way].concat());
    }

    #[test]
    fn it_starts_a_way_when_told_and_knows_no_volume() {
        assert_eq!(control("0041", [0x01, 11, 1, 0, 1, 0, 0, 0]), Answer::Bytes(Vec::new()));
        assert_eq!(control("0041", [0xa1, 0x81, 0, 2, 0, 5, 2, 0]), Answer::Stall);
    }
}
