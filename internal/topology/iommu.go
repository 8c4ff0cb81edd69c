package topology

import (
	"fmt"
	"strings"
)

// iommuGroup is what the kernel keeps apart from other devices. Its number is
// empty where there is no IOMMU.
type iommuGroup struct {
	number string
	domain string // DMA, DMA-FQ: addresses are translated; identity: they are not
}

func (r reader) iommuGroup(id BusID) iommuGroup {
	link := pciDir(id) + "/iommu_group"
	number := r.Resolve("sys/kernel/iommu_groups", link)
	if number == "" {
		return iommuGroup{}
	}
	return iommuGroup{number: number, domain: r.Text(link + "/type")}
}

// Hint says what may keep bytes from going straight between a GPU and a NIC, as
// far as sysfs shows it; empty if it shows nothing. It is a hint: whether a
// transfer works, a transfer tells.
func (t *Tree) Hint(gpuBusID string, nic NIC) string {
	gpu, _ := ParseBusID(gpuBusID)
	g, n := t.functions[gpu].group, t.functions[nic.BusID].group
	class := t.class(gpu, nic.BusID)
	if g.number == "" || n.number == "" || class == Unknown {
		return ""
	}
	var hints []string
	if class <= PXB && g.number != n.number {
		hints = append(hints, fmt.Sprintf("ACS separates them (IOMMU groups %s and %s), so that their bytes go by way of the host bridge: "+
			"turn ACS off on the switch's ports", g.number, n.number))
	}
	if strings.HasPrefix(g.domain, "DMA") || strings.HasPrefix(n.domain, "DMA") {
		hints = append(hints, "the IOMMU translates their addresses: boot with iommu=pt")
	}
	return strings.Join(hints, "; ")
}
