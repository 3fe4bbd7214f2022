import { cp } from 'node:fs/promises';
import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(undefined, {
  onSuccess: () => cp('src/model/model.safetensors', 'dist/model/model.safetensors'),
});
