import { createReferenceBackend } from '@winnow/ops';
import { describeBackend } from '../src/index.js';

describeBackend({ name: 'reference', create: createReferenceBackend });
