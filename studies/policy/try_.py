import os,sys,time,json
os.environ['OPENBLAS_NUM_THREADS']='1'
import numpy as np
from pathlib import Path
from tokenizers import Tokenizer
from studies.policy.model import Model
from studies.policy.simulation import simulate
from studies.policy.policies import *
from studies.policy import texts
F=Path('bridge/h2o_pack/models/demo')
tok=Tokenizer.from_file(str(F/'tokenizer.json'))
try: E=np.load('/tmp/policy_ev.npy')
except OSError: E=texts.corpus(tok); np.save('/tmp/policy_ev.npy',E)
model=Model.load(F)
def run(policy,C,n=32,seed=0,T=1024,kinds=('one','decoys')):
    parts=[]
    for kind in kinds:
        parts.append(texts.sequences(tok,E,n,T,12 if kind=='decoys' else 0,(.1,.3) if kind!='spread' else (.02,.95),seed))
    X=np.concatenate([p[0] for p in parts]); a=parts[0][2]
    o=simulate(model,X,policy,C); res={}
    for j,kind in enumerate(kinds):
        s=slice(j*n,(j+1)*n); m=parts[j][1]
        res[kind]=dict(recall=float(o.right[s,-4:].all(1).mean()), nll=float(o.losses[s][m].mean()), seq=[float(l[k].mean()) for l,k in zip(o.losses[s],m)])
    return res,o
if __name__=='__main__':
    t=time.time(); r,_=run(Policy(),int(sys.argv[1]),int(sys.argv[2])); print({k:(v['recall'],v['nll']) for k,v in r.items()}, time.time()-t)
