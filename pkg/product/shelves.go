// SPDX-License-Identifier: Apache-2.0

package product

import "time"

// shelfController is the controller of a power shelf. It is restarted to bring its
// firmware into force; the power stays on.
func shelfController() Redfish {
	return Redfish{
		Update:        UpdatePush,
		MultipartPath: updatePath + "/update-multipart",
		PushPath:      updatePath + "/update",
		ApplyTime:     "OnReset",
		UploadAnswer:  60 * time.Second,
		TaskLimit:     60 * time.Minute,
		Activation:    Activation{Steps: []Step{StepManagerReset, StepWaitManager}},
	}
}

// shelfPart is the controller or the supplies of a shelf. Its package knows where
// it goes.
func shelfPart(source, key, installed string) Component {
	return Component{Source: source, Key: key, ByDefault: true, Installed: []string{installed}}
}
