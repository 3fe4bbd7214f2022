'use client';

import { useEffect, useState } from 'react';
import { generate } from '../lib/generate.js';

export default function Page() {
  const [text, setText] = useState('');
  useEffect(() => {
    generate().then(setText);
  }, []);
  return <output>{text}</output>;
}
