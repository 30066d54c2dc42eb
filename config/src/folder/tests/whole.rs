//! The folder as a whole: missing, gone, open to others, crowded.

use super::*;

#[test]
fn a_missing_folder_is_no_handlers_unless_the_settings_name_it() {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("hand lers");
    assert_eq!(HandlersFolder::new(&path).look().unwrap(), Look::default());
    let sentence = HandlersFolder::named(&path).look().unwrap_err().to_string();
    let mend = format!("{}: there is no such folder; run: mkdir -m 755 '{}'", path.display(), path.display());
    assert_eq!(sentence, mend);
    fs::create_dir(&path).unwrap();
    mode(&path, 0o755);
    assert_eq!(HandlersFolder::named(&path).look().unwrap(), Look::default());
}

#[test]
fn a_folder_that_goes_takes_its_handlers_along_and_one_that_comes_back_brings_them() {
    let mut scene = Scene::new();
    scene.folder = HandlersFolder::new(&scene.path);
    let before = scene.look();
    let aside = scene.path.with_file_name("aside");
    fs::rename(&scene.path, &aside).unwrap();
    assert_eq!(scene.look(), Look::default());
    fs::rename(&aside, &scene.path).unwrap();
    assert_eq!(scene.look(), before);
}

#[test]
fn a_folder_that_others_may_write_or_own_or_that_is_none_is_refused_with_the_mend() {
    let mut scene = Scene::new();
    let path = scene.path.clone();
    let shown = path.display().to_string();
    for bits in [0o775, 0o757, 0o1777] {
        mode(&path, bits);
        let sentence = scene.folder.look().unwrap_err().to_string();
        assert_eq!(sentence, format!("{shown} is open to other users (mode {bits:04o}); run: chmod go-w {shown}"));
    }
    mode(&path, 0o755);
    scene.look();
    if geteuid().is_root() {
        chown(&path, Some(STRANGER), None).unwrap();
        let sentence = scene.folder.look().unwrap_err().to_string();
        assert!(sentence.starts_with(&format!("{shown} belongs to user {STRANGER}")), "{sentence}");
        assert!(sentence.ends_with(&format!("run: chown -R 0 {shown}")), "{sentence}");
        chown(&path, Some(0), None).unwrap();
    }
    let link = path.with_file_name("link");
    symlink(&path, &link).unwrap();
    for spelling in [link.clone(), link.join("")] {
        let sentence = HandlersFolder::new(spelling).look().unwrap_err().to_string();
        assert!(
            sentence.contains("link is a symbolic link; put the folder itself there, or name the real one"),
            "{sentence}"
        );
    }
    let file = path.join("custom.a.good.wasm");
    let sentence = HandlersFolder::new(&file).look().unwrap_err().to_string();
    assert_eq!(sentence, format!("{} is not a folder", file.display()));
    scene.look();
    let reason = io::Error::from(io::ErrorKind::PermissionDenied);
    let sentence = FolderError::Unreadable { path: "/h".into(), reason }.to_string();
    assert_eq!(sentence, "cannot read /h: permission denied; as its owner, run: chmod a+rx /h");
}

#[test]
fn a_crowded_folder_is_looked_at_up_to_its_limit_and_no_handler_is_cut_in_two() {
    let mut scene = Scene::new();
    fs::remove_file(scene.path.join("custom.a.good.wasm")).unwrap();
    for number in 0..ENTRIES_MAX - 1 {
        scene.put(format!("custom.m.a{number:04}.wasm"), b"");
    }
    scene.put(".hidden", b"");
    scene.put("custom.z.last.wasm", b"");
    let look = scene.look();
    assert_eq!((look.files.len(), look.refused.len()), (ENTRIES_MAX, 0));

    // The second file of the last handler lies behind the cut, so both are left out.
    scene.put("custom.z.last.wat", b"");
    let look = scene.look();
    assert_eq!(look.files.len(), ENTRIES_MAX - 1);
    let refused: Vec<String> = look.refused.iter().map(|one| format!("{}: {}", one.file, one.why)).collect();
    assert_eq!(refused, ["further files: at most 4096 names are looked at, the first by name; 2 more lie here"]);

    // Whatever else comes, the names in front stay.
    for name in ["zzz", "zzy", "custom.z.more.wasm"] {
        scene.put(name, b"");
    }
    let look = scene.look();
    assert_eq!(look.files.len(), ENTRIES_MAX - 1);
    assert_eq!(look.refused.len(), 1);
    assert!(look.refused[0].why.ends_with("; 5 more lie here"), "{:?}", look.refused);
}
