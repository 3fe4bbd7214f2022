import { winnowTsup } from './tsup.mjs';

export default winnowTsup();
