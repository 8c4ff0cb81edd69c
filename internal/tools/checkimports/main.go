// Command checkimports fails if a package of this module imports another
// against the order of docs/architecture.md, or a module that the library does
// not depend on. rules.go holds the order.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// pkg is what is needed of `go list -json`.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func main() {
	pkgs, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkimports:", err)
		os.Exit(1)
	}
	var bad []string
	for _, p := range pkgs {
		bad = append(bad, check(p)...)
	}
	for _, line := range bad {
		fmt.Fprintln(os.Stderr, "checkimports:", line)
	}
	if len(bad) > 0 {
		os.Exit(1)
	}
	fmt.Printf("checkimports: %d packages in order\n", len(pkgs))
}

func list() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// check returns a line for each import of p that breaks a rule.
func check(p pkg) []string {
	from, ok := groupOf(p.ImportPath)
	if !ok {
		return []string{p.ImportPath + " is in no group; give it a place in internal/tools/checkimports/rules.go"}
	}
	var bad []string
	add := func(imports []string, test bool) {
		for _, path := range imports {
			if why := forbidden(from, path, test); why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, why))
			}
		}
	}
	add(p.Imports, strings.HasSuffix(p.ImportPath, "test")) // conformance suites are test code
	add(p.TestImports, true)
	add(p.XTestImports, true)
	return bad
}

// forbidden says why a package of group from may not import path, or returns
// "". Tests may also use groups of their own level.
func forbidden(from group, path string, test bool) string {
	if !strings.Contains(strings.Split(path, "/")[0], ".") {
		return "" // the standard library, or "C"
	}
	if !within(path, modulePath) {
		return forbiddenModule(from, path, test)
	}
	to, ok := groupOf(path)
	switch {
	case !ok:
		return "the imported package is in no group"
	case to.path == from.path, to.level < from.level, test && to.level == from.level:
		return ""
	case to.level == from.level:
		return to.path + " and " + from.path + " stand side by side and do not know each other"
	}
	return to.path + " stands above " + from.path
}

func forbiddenModule(from group, path string, test bool) string {
	if from.heavy || withinAny(path, light) {
		return ""
	}
	if test && withinAny(path, lightTest) {
		return ""
	}
	return "the library does not depend on this module; only cmd, examples and interop may"
}
