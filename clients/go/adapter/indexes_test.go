package adapter

import (
	"slices"
	"strings"
	"testing"
)

func TestIndexesAreRanges(t *testing.T) {
	for text, want := range map[Indexes][]int{
		"0-1,5": {0, 1, 5},
		"7":     {7},
		"":      nil,
	} {
		if found := slices.Collect(text.All()); !slices.Equal(found, want) {
			t.Errorf("%q has %v, want %v", text, found, want)
		}
		for index := range 8 {
			if text.Contains(index) != slices.Contains(want, index) {
				t.Errorf("%q contains %d: %v", text, index, text.Contains(index))
			}
		}
	}
}

func TestIndexesAreReadWholeOrNotAtAll(t *testing.T) {
	for _, row := range []struct {
		text      string
		vreplicas string
		said      string
	}{
		{"0-1,5", "3", ""},
		{"0-1,5", "2", "has 3 indexes for 2 vreplicas"},
		{"0-1,8", "3", "must be less than 8"},
		{"5,0-1", "3", "must ascend"},
		{"1-0", "0", "must ascend"},
		{"0-1,1", "3", "must ascend"},
		{"0,-1", "2", "must be like"},
		{"a", "1", "must be like"},
		{"0-99999999999", "1", "must be like"},
		{"0-2000000000", "1", "at most 100000"},
	} {
		document := `{"generation": 1, "uid": "u", "shares": {"a/b": {"state": "Serve", "of": 8, "vreplicas": ` +
			row.vreplicas + `, "indexes": "` + row.text + `"}}}`
		read, err := readAssignment([]byte(document))
		if row.said == "" && (err != nil || read.Shares["a/b"].Indexes != Indexes(row.text)) {
			t.Errorf("%s is read as %v, %v", row.text, read, err)
		}
		if row.said != "" && (err == nil || !strings.Contains(err.Error(), row.said)) {
			t.Errorf("%s: %v, want %q", row.text, err, row.said)
		}
	}
}
