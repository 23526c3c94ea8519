// Prints what a GJSON path selects from the JSON on standard input, as KEDA's metrics-api scaler evaluates its
// valueLocation: nothing, and exit code 1, where the path selects nothing.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/tidwall/gjson"
)

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil || len(os.Args) != 2 {
		os.Exit(2)
	}
	found := gjson.GetBytes(body, os.Args[1])
	if !found.Exists() {
		os.Exit(1)
	}
	fmt.Println(found.Raw)
}
