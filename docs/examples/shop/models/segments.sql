select if(spent >= 1500, 'loyal', 'occasional') as segment, count(*) as customers, sum(spent) as revenue
from {{ ref('customers') }}
group by if(spent >= 1500, 'loyal', 'occasional')
