"""Sequences of held-out text with facts in them, and what is asked of them."""
import ast, glob, hashlib, os, re, sys, random, dataclasses, numpy as np
from tokenizers import Tokenizer
NATO = 'ALPHA BRAVO CHARLIE DELTA ECHO FOXTROT GOLF HOTEL INDIA JULIET KILO LIMA MIKE NOVEMBER OSCAR PAPA QUEBEC ROMEO SIERRA TANGO UNIFORM VICTOR WHISKEY XRAY YANKEE ZULU'.split()
def held(name): return int(hashlib.md5(name.encode()).hexdigest(), 16) % 100 < 6
def corpus(tok):
    LIB='/usr/lib/python3.11'
    LIB=os.path.dirname(os.__file__)
    skip = re.compile(r'/(test|tests|idle_test|site-packages|encodings|__pycache__|lib2to3/tests|pydoc_data|turtledemo|config-[^/]*)/|/_sysconfigdata|/(stringprep|nturl2path|this|antigravity)\.py$|/html/entities\.py$')
    out=[]
    for f in sorted(glob.glob(LIB + '/**/*.py', recursive=True)):
        if skip.search(f): continue
        try: s = open(f, encoding='utf-8').read(); ast.parse(s)
        except Exception: continue
        if len(s) < 400: continue
        if held(os.path.relpath(f,LIB)): out.append([0]+tok.encode(s).ids)
    return np.array(sum(out,[]),np.int32)
@dataclasses.dataclass
class Sample:
    tokens: np.ndarray; answers: slice; text: np.ndarray
def sequences(tok, E, n, T=1024, decoys=0, depth=(.1,.3), seed=0, words=NATO, asked=False):
    r=random.Random(seed); toks=[];mask=[]
    enc=lambda s: tok.encode(s).ids
    for _ in range(n):
        ks=r.sample(words,decoys+1); v=[str(r.randint(1000,9999)) for _ in ks]
        f=[enc('\nthe code of %s is %s.\n'%(k,x)) for k,x in zip(ks,v)]
        q=enc('\nthe code of %s is'%ks[0]); A=enc(' '+v[0])
        body=T-len(q)-len(A)-sum(map(len,f))
        i=r.randint(0,len(E)-T-1); e=E[i:i+body].tolist()
        spots=[(r.uniform(*depth),0)]+[(r.uniform(.02,.92),j) for j in range(1,decoys+1)]
        ids=[];m=[];at=0
        for p,j in sorted(spots):
            c=int(p*body); ids+=e[at:c]; m+=[1]*(c-at); at=c; ids+=f[j]; m+=[0]*len(f[j])
        ids+=e[at:];m+=[1]*(body-at); ids+=q+A; m+=[0]*len(q+A)
        assert len(ids)==T
        toks.append(ids); mask.append(m)
    mask=np.array(mask,bool); mask[:,:T//4]=False
    return np.array(toks,np.int32), mask, len(A)
