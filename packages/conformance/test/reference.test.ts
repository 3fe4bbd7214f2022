import { createReferenceBackend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { describeBackend } from '../src/index.js';

describeBackend({ name: 'reference', create: createReferenceBackend, coverage: testCoverage });
