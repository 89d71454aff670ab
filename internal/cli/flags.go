package cli

import (
	"errors"
	"flag"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"
)

// valueFlag is an option with a value. It is set each time that the option is given, in
// the order of the command line. cli's own flags register every name and at the end set
// the unused names again. A valueFlag is only given by its first name.
type valueFlag struct{ *cli.GenericFlag }

// Apply implements cli.Flag.
func (f *valueFlag) Apply(set *flag.FlagSet) error {
	set.Var(f.Value, f.Name, f.Usage)
	return nil
}

// Names implements cli.Flag. For each option cli asks for the names of all options, and its own
// flags split every name by a regular expression, which takes half a millisecond of every run.
func (f *valueFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }

// checkedFlag returns an option whose value is checked when it is parsed. usage names
// the value in back quotes, as in package flag.
func checkedFlag(name, usage string, v *checkedValue, aliases ...string) *valueFlag {
	return &valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: v}}
}

// optionValue is one use of an option.
type optionValue struct{ option, value string } // option is its long name

// orderedOptions collects the values of several options in the order of the command
// line, as rsync's filter rules require.
type orderedOptions struct{ given []optionValue }

// flag returns one of the options, which may be repeated. check returns what is wrong with a value,
// as the text that follows "--NAME VALUE: ". A nil check accepts every value.
func (l *orderedOptions) flag(name, usage string, check func(value string) error, aliases ...string) cli.Flag {
	return checkedFlag(name, usage, &checkedValue{set: func(s string) error {
		if check != nil {
			if err := check(s); err != nil {
				return err
			}
		}
		l.given = append(l.given, optionValue{name, s})
		return nil
	}}, aliases...)
}

// switchFlag is an option without a value. Its position in the command line matters: of
// several options about the same setting, the last one wins.
type switchFlag struct {
	valueFlag
	negatable bool // --no-NAME turns it off, for each of its names
}

// onOff returns an option that --no-NAME turns off.
func onOff(name, usage string, to *bool, aliases ...string) cli.Flag {
	return onOffBoth(name, usage, []*bool{to}, aliases...)
}

// onOffAlso is onOff, but --no-NAME also turns off others that imply the option.
func onOffAlso(name, usage string, to *bool, others []*bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: []*bool{to}, implied: others}}}, true}
}

// onOffUnless is onOff for a setting that may be on by default. --no-NAME sets off.
func onOffUnless(name, usage string, to, off *bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: []*bool{to}, unless: off}}}, true}
}

// onOffBoth is onOff for an option that sets several values.
func onOffBoth(name, usage string, to []*bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: to}}}, true}
}

// allOn returns an option that turns on several settings.
func allOn(name, usage string, to []*bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: to}}}, false}
}

// TakesValue implements cli.DocGenerationFlag.
func (f *switchFlag) TakesValue() bool { return false }

// Negatable implements args.Switch.
func (f *switchFlag) Negatable() bool { return f.negatable }

// switchValue is the value of a switchFlag.
type switchValue struct {
	to      []*bool
	implied []*bool // turned off with the option, but not on
	unless  *bool   // set if the option was turned off; may be nil
}

// Set implements flag.Value.
func (t *switchValue) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("not true or false")
	}
	for _, b := range t.to {
		*b = on
	}
	for _, b := range t.implied {
		*b = *b && on
	}
	if t.unless != nil {
		*t.unless = !on
	}
	return nil
}

// String implements flag.Value.
func (t *switchValue) String() string {
	return strconv.FormatBool(!slices.ContainsFunc(t.to, func(b *bool) bool { return !*b }))
}

// IsBoolFlag reports to package flag that no value follows.
func (t *switchValue) IsBoolFlag() bool { return true }

// Topics group options in help and manuals, in this order.
const (
	topicSelect    = "Selecting files"
	topicKept      = "What is kept"
	topicCheck     = "Verification"
	topicDest      = "At the destination"
	topicServe     = "What is served"
	topicAccess    = "Access"
	topicFarEnd    = "Starting the far end"
	topicTransport = "Transport"
	topicGPU       = "GPU memory"
	topicLimits    = "Limits"
	topicMeasure   = "What is measured"
	topicOutput    = "Output"
	topicHabits    = "Of rsync, without effect"
)

// topics returns the topics in order.
func topics() []string {
	return []string{
		topicSelect, topicKept, topicCheck, topicDest, topicServe, topicAccess, topicFarEnd, topicTransport, topicGPU, topicLimits, topicMeasure, topicOutput, topicHabits,
	}
}

// about assigns options to a topic.
func about(topic string, flags ...cli.Flag) []cli.Flag {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.BoolFlag:
			f.Category = topic
		case *cli.StringFlag:
			f.Category = topic
		case *cli.GenericFlag:
			f.Category = topic
		case *valueFlag:
			f.Category = topic
		case *switchFlag:
			f.Category = topic
		}
	}
	return flags
}
