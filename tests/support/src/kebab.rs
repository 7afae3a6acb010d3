//! Names of subcommands, as clap derives them from the names of types.

/// `DumpZone` as `dump-zone`.
pub fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for (index, c) in name.chars().enumerate() {
        if c.is_uppercase() && index > 0 {
            kebab.push('-');
        }
        kebab.extend(c.to_lowercase());
    }
    kebab
}
