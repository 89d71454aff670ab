package lint

// limits are the limits of this module's figures. most is the present limit: work that
// lowers a figure also lowers its limit, down to the goal, and nothing raises it.
var limits = []struct {
	name       string
	of         func(*Figures) (value float64, places []string)
	most, goal float64
}{
	{"lines of the product", func(f *Figures) (float64, []string) { return float64(f.ProductLines), nil }, 74000, 61000},
	{"lines of tests", func(f *Figures) (float64, []string) { return float64(f.TestLines), nil }, 92500, 72000},
	{"files of a package", func(f *Figures) (float64, []string) { return f.MostFiles.figure() }, 86, 30},
	{"lines of a package", func(f *Figures) (float64, []string) { return f.MostLines.figure() }, 15300, 5000},
	{"files of a package that depend on each other", func(f *Figures) (float64, []string) { return f.LargestComponent.figure() }, 75, 17},
	{"types with methods and over 20 fields or 40 methods", func(f *Figures) (float64, []string) { return figure(f.LargeTypes) }, 17, 0},
	{"tests of hello flags outside wire and dest", func(f *Figures) (float64, []string) { return figure(f.FlagTests) }, 150, 15},
	{"imports of chunker and gpu by wire", func(f *Figures) (float64, []string) { return figure(f.ImportsOfWire) }, 0, 0},
	{"sleeps in tests outside loops and synctest", func(f *Figures) (float64, []string) { return figure(f.Sleeps) }, 42, 10},
	{"\"where\" in 10,000 words of comments and papers", func(f *Figures) (float64, []string) { return f.WhereRate, nil }, 13, 10},
	{"\"tell\" in 10,000 words of comments and papers", func(f *Figures) (float64, []string) { return f.TellRate, nil }, 6.5, 3},
	{"words of docs/design", func(f *Figures) (float64, []string) { return float64(f.DesignWords), nil }, 16100, 15000},
	{"lines of the changelog's first version", func(f *Figures) (float64, []string) { return float64(f.ChangelogLines), nil }, 30, 30},
}

func (c counted) figure() (float64, []string) { return float64(c.n), []string{c.in} }

func figure(places []string) (float64, []string) { return float64(len(places)), places }
