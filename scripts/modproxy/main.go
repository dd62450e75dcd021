// Modproxy writes the module of this checkout, as it is committed, into a folder
// that is a module proxy: GOPROXY=file:///that/folder serves it as a release would
// be served.
//
//	go run ./scripts/modproxy <version> <folder>
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: modproxy <version> <folder>")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

// write writes what the go command asks a proxy for (Go Modules Reference, GOPROXY
// protocol): list, info, mod and zip.
func write(version, folder string) error {
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(gomod), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // the caller names the folder
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": gomod} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, version+".zip")) //nolint:gosec // likewise
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(file, m, ".", "HEAD", ""); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
