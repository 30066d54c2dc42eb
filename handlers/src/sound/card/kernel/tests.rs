//! Cards in a tree of the test's own, in the shape in which the kernel shows them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::symlink;

use super::*;

const CONTROLLER: &str = "pci0000:00/0000:00:14.0";

/// `/` with nothing in it but sound cards.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.0.path().join("sys/class/sound")).unwrap();
        tree.file("sys/bus/pci/.keep", b"");
        for (bus, version) in [("usb1", b" 2.00\n"), ("usb2", b" 3.00\n")] {
            tree.file(&format!("sys/devices/{CONTROLLER}/{bus}/version"), version);
        }
        symlink(tree.path("sys/bus/pci"), tree.path(&format!("sys/devices/{CONTROLLER}/subsystem"))).unwrap();
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A card as a part of the device in that folder.
    fn plug(&self, number: u32, id: &str, part: &str) {
        let card = format!("sys/devices/{part}/sound/card{number}");
        self.file(&format!("{card}/id"), format!("{id}\n").as_bytes());
        symlink(self.path(&format!("sys/devices/{part}")), self.path(&format!("{card}/device"))).unwrap();
        symlink(self.path(&card), self.path(&format!("sys/class/sound/card{number}"))).unwrap();
    }

    /// A card on USB; `port` as in `1-2.4`.
    fn plug_usb(&self, number: u32, id: &str, port: &str, serial: Option<&[u8]>) {
        let device = self.device(port);
        self.file(&format!("{device}/idVendor"), b"0d8c\n");
        self.file(&format!("{device}/idProduct"), b"0014\n");
        if let Some(serial) = serial {
            self.file(&format!("{device}/serial"), &[serial, b"\n"].concat());
        }
        let part = device.strip_prefix("sys/devices/").unwrap();
        self.plug(number, id, &format!("{part}/{port}:1.0"));
    }

    fn device(&self, port: &str) -> String {
        let bus = port.split('-').next().unwrap();
        format!("sys/devices/{CONTROLLER}/usb{bus}/{port}")
    }

    fn unplug(&self, number: u32, port: &str) {
        fs::remove_file(self.path(&format!("sys/class/sound/card{number}"))).unwrap();
        fs::remove_dir_all(self.path(&self.device(port))).unwrap();
    }

    fn kernel(&self) -> Kernel {
        Kernel::under(self.0.path())
    }

    /// The first name of each card, in the order of their numbers.
    fn names(&self) -> Vec<String> {
        let cards = self.kernel().cards();
        cards.iter().map(|card| names(&cards, card, 0).own).collect()
    }

    /// What a name leads to: ALSA's name now, or why to none.
    fn leads(&self, name: &str) -> Result<String, Lost> {
        self.kernel().resolve(&name.parse().unwrap()).map(|card| card.alsa_name(0))
    }
}

const SERIAL_A: &str = "usb:0d8c:0014,SERIAL=A,DEV=0";
const PORT_2: &str = "usb:0d8c:0014,PORT=pci-0000:00:14.0-usbv2-0:2:1.0,DEV=0";
const PORT_3: &str = "usb:0d8c:0014,PORT=pci-0000:00:14.0-usbv2-0:3:1.0,DEV=0";

#[test]
fn a_card_with_a_serial_number_is_found_by_it_whatever_its_number_its_alsa_name_and_its_port() {
    let tree = Tree::new();
    tree.plug_usb(0, "Device", "1-2", Some(b"A"));
    tree.plug_usb(1, "Device_1", "1-3", Some(b"B"));
    assert_eq!(tree.names(), [SERIAL_A, "usb:0d8c:0014,SERIAL=B,DEV=0"]);
    assert_eq!(tree.leads(SERIAL_A).unwrap(), "plughw:CARD=Device,DEV=0");
    // Both are pulled out, and plugged in the other way round.
    tree.unplug(0, "1-2");
    tree.unplug(1, "1-3");
    assert_eq!(tree.leads(SERIAL_A), Err(Lost::Gone));
    tree.plug_usb(0, "Device", "1-2", Some(b"B"));
    assert_eq!(tree.leads(SERIAL_A), Err(Lost::Gone), "the other one never takes its place");
    tree.plug_usb(1, "Device_1", "1-3", Some(b"A"));
    assert_eq!(tree.leads(SERIAL_A).unwrap(), "plughw:CARD=Device_1,DEV=0");
}

#[test]
fn a_card_without_a_serial_number_is_found_by_its_port() {
    let tree = Tree::new();
    tree.plug_usb(0, "Device", "1-2", None);
    tree.plug_usb(1, "Device_1", "1-3", Some(b"  "));
    tree.plug_usb(2, "Device_2", "2-3.1", None);
    let third = "usb:0d8c:0014,PORT=pci-0000:00:14.0-usbv3-0:3.1:1.0,DEV=0";
    assert_eq!(tree.names(), [PORT_2, PORT_3, third]);
    assert_eq!(tree.leads(PORT_3).unwrap(), "plughw:CARD=Device_1,DEV=0");
    tree.unplug(0, "1-2");
    assert_eq!(tree.leads(PORT_2), Err(Lost::Gone));
    assert_eq!(tree.leads(PORT_3).unwrap(), "plughw:CARD=Device_1,DEV=0");
}

#[test]
fn a_controller_that_is_numbered_by_the_order_at_the_start_has_the_name_of_what_has_an_address_or_none() {
    let rows = [
        ("pci0000:00/0000:00:0d.1/dwc3.0.auto/xhci-hcd.1.auto", Some("pci-0000:00:0d.1")),
        ("platform/fe380000.usb/xhci-hcd.0.auto", Some("platform-fe380000.usb")),
        ("platform/vhci_hcd.0", Some("platform-vhci_hcd.0")),
        ("bare", Some("bare")),
        ("nothing/xhci-hcd.2.auto", None),
    ];
    let tree = Tree::new();
    for (folder, subsystem) in
        [("pci0000:00/0000:00:0d.1", "pci"), ("platform/fe380000.usb", "platform"), ("platform/vhci_hcd.0", "platform")]
    {
        tree.file(&format!("sys/devices/{folder}/.keep"), b"");
        tree.file(&format!("sys/bus/{subsystem}/.keep"), b"");
        let link = tree.path(&format!("sys/devices/{folder}/subsystem"));
        symlink(tree.path(&format!("sys/bus/{subsystem}")), link).unwrap();
    }
    for (folder, name) in rows {
        assert_eq!(controller(&tree.path(&format!("sys/devices/{folder}"))).as_deref(), name, "{folder}");
    }
}

#[test]
fn a_serial_number_that_two_cards_have_is_neither_s_name() {
    let tree = Tree::new();
    tree.plug_usb(0, "Device", "1-2", Some(b"A"));
    assert_eq!(tree.names(), [SERIAL_A]);
    tree.plug_usb(1, "Device_1", "1-3", Some(b"A"));
    assert_eq!(tree.names(), [PORT_2, PORT_3]);
    let lost = tree.leads(SERIAL_A).unwrap_err();
    assert_eq!(lost, Lost::Several(vec![PORT_2.to_owned(), PORT_3.to_owned()]));
    let said = lost.fault(&SERIAL_A.parse().unwrap()).to_string();
    assert_eq!(said, format!("2 sound cards have the name {SERIAL_A}; write {PORT_2} or {PORT_3} instead"));
    assert_eq!(tree.leads(PORT_2).unwrap(), "plughw:CARD=Device,DEV=0");
}

#[test]
fn other_cards_keep_alsa_s_name_and_each_card_keeps_it_beside_its_own() {
    let tree = Tree::new();
    tree.plug(0, "PCH", &format!("{CONTROLLER}/../0000:00:1f.3"));
    tree.plug(1, "Loopback", "platform/snd_aloop.0");
    tree.plug_usb(2, "Device", "1-2", Some(b"A"));
    let cards = tree.kernel().cards();
    let named: Vec<Names> = cards.iter().map(|card| names(&cards, card, 3)).collect();
    let alsa = |id: &str| Names { own: format!("plughw:CARD={id},DEV=3"), also: Vec::new() };
    let [pch, loopback, device] = named.try_into().unwrap();
    assert_eq!([pch, loopback], [alsa("PCH"), alsa("Loopback")]);
    let with = |name: &str| name.replace("DEV=0", "DEV=3");
    let wanted = Names { own: with(SERIAL_A), also: vec![with(PORT_2), "plughw:CARD=Device,DEV=3".to_owned()] };
    assert_eq!(device, wanted);
}

#[test]
fn a_card_that_went_and_one_that_has_its_number_now_are_not_the_same() {
    let tree = Tree::new();
    tree.plug_usb(0, "Device", "1-2", Some(b"A"));
    let before = tree.kernel().resolve(&SERIAL_A.parse().unwrap()).unwrap();
    assert!(tree.kernel().resolve(&PORT_2.parse().unwrap()).unwrap().is(&before), "by either name");
    // What keeps the file system from giving the old folder's number to the new one.
    fs::rename(tree.path(&tree.device("1-2")), tree.path("sys/old")).unwrap();
    fs::remove_file(tree.path("sys/class/sound/card0")).unwrap();
    tree.plug_usb(0, "Device", "1-2", Some(b"A"));
    let after = tree.kernel().resolve(&SERIAL_A.parse().unwrap()).unwrap();
    assert!(!after.is(&before));
}

#[test]
fn what_cannot_be_read_or_is_no_card_is_passed_over() {
    let tree = Tree::new();
    assert_eq!(tree.names(), Vec::<String>::new());
    assert_eq!(Kernel::under(Path::new("/nonexistent")).cards(), []);
    tree.plug_usb(0, "Device", "1-2", Some(b"A"));
    tree.plug_usb(1, "../../etc", "1-3", Some(b"B"));
    tree.plug_usb(2, "", "1-4", Some(b"C"));
    symlink("/nonexistent", tree.path("sys/class/sound/card7")).unwrap();
    for other in ["controlC0", "pcmC0D0p", "cardx", "card", "card-1", "card99999999999999999999"] {
        tree.file(&format!("sys/class/sound/{other}/id"), b"Other\n");
    }
    // Numbers of a kind that are none: the card is there, and has ALSA's name alone.
    tree.plug_usb(3, "Odd", "1-5", Some(b"D"));
    tree.file(&format!("{}/idVendor", tree.device("1-5")), b"\xff\xff\n");
    assert_eq!(tree.names(), [SERIAL_A, "plughw:CARD=Odd,DEV=0"]);
    assert_eq!(tree.leads("usb:0d8c:0014,SERIAL=B,DEV=0"), Err(Lost::Gone));
}
