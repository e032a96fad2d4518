// SPDX-License-Identifier: Apache-2.0
//! Links a kernel instead of a program: at a fixed place, without what a program is started by.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for word in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,--gc-sections"] {
        println!("cargo::rustc-link-arg-bins={word}");
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-z,max-page-size=4096,-z,noexecstack,-z,norelro,--no-eh-frame-hdr");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/guest.ld");
    println!("cargo::rerun-if-changed=guest.ld");
    println!("cargo::rerun-if-changed=src/start.s");
}
