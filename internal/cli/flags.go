package cli

import (
	"errors"
	"flag"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"
)

// valueFlag is an option with a value that is set once for each time that the option is
// given, in the order of the command line. cli's own flags register every name, and at
// the end set again the names that were not used. A valueFlag gets only its first name.
type valueFlag struct{ *cli.GenericFlag }

// Apply implements cli.Flag.
func (f *valueFlag) Apply(set *flag.FlagSet) error {
	set.Var(f.Value, f.Name, f.Usage)
	return nil
}

// Names implements cli.Flag. For each option cli asks for the names of all options, and
// its own flags search every name for commas by a regular expression: that takes half a
// millisecond of every run.
func (f *valueFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }

// checkedFlag returns an option whose value is checked when it is read. usage names the
// value in back quotes, as in package flag.
func checkedFlag(name, usage string, v *checkedValue, aliases ...string) *valueFlag {
	return &valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: v}}
}

// optionValue is one use of an option.
type optionValue struct{ option, value string } // option is its long name

// orderedOptions collects the values of several options in the order of the command
// line across all of them, as rsync's filter rules need it.
type orderedOptions struct{ given []optionValue }

// flag returns one of the options, which may be given many times. check returns what is
// wrong with a value, in the words that follow "--NAME VALUE: "; a nil check accepts
// every value.
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

// switchFlag is an option without a value that acts at its place in the command line:
// of several options about the same thing, the last one wins.
type switchFlag struct {
	valueFlag
	negatable bool // --no-NAME, for each of its names, turns it off
}

// onOff returns an option that --no-NAME turns off again.
func onOff(name, usage string, to *bool, aliases ...string) cli.Flag {
	return onOffBoth(name, usage, []*bool{to}, aliases...)
}

// onOffAlso is onOff, but --no-NAME also turns off others that imply the option.
func onOffAlso(name, usage string, to *bool, others []*bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: []*bool{to}, implied: others}}}, true}
}

// onOffUnless is onOff for what may also be on if nobody says so: off is set by --no-NAME.
func onOffUnless(name, usage string, to, off *bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: []*bool{to}, unless: off}}}, true}
}

// onOffBoth is onOff for an option that sets several values at once.
func onOffBoth(name, usage string, to []*bool, aliases ...string) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: &switchValue{to: to}}}, true}
}

// allOn returns an option that stands for several others.
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
	unless  *bool   // or nil: that the option was turned off
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

// IsBoolFlag tells package flag that no value has to follow.
func (t *switchValue) IsBoolFlag() bool { return true }

// The topics by which help and manuals group options, in their order.
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

// topics lists the topics.
func topics() []string {
	return []string{
		topicSelect, topicKept, topicCheck, topicDest, topicServe, topicAccess, topicFarEnd, topicTransport, topicGPU, topicLimits, topicMeasure, topicOutput, topicHabits,
	}
}

// about puts options under a topic.
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
