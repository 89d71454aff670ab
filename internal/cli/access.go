package cli

import (
	"cmp"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/trust"

	"github.com/urfave/cli/v2"
)

// keyFileVariable names the key file if --key-file does not.
const keyFileVariable = "GDRCP_KEY_FILE"

// keyFileFlag is the option that names the file of the key that both ends share.
func keyFileFlag(usage string, to *string) cli.Flag {
	return &cli.StringFlag{Name: "key-file", Usage: "`FILE` " + usage + "; else $" + keyFileVariable + " names it", Destination: to}
}

// key reads the key that the user named by option or environment variable.
func (p *program) key(file string) (trust.Key, error) {
	file = cmp.Or(file, p.getenv(keyFileVariable))
	if file == "" {
		return trust.Key{}, noKey()
	}
	return trust.ReadKeyFile(file)
}

func noKey() error {
	return &hintedError{
		args.UsageErrorf("no key is named: gdrcp serve and its clients need the same key"),
		"gdrcp key new NAME makes one; name its file at both ends, by --key-file FILE or " + keyFileVariable,
	}
}
